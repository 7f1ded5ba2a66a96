"""What people look at: Plotly pages and charts in the terminal."""
