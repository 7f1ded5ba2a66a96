"""Where ranks compute: streams of work, events between them, and how long a synthetic kernel takes."""
