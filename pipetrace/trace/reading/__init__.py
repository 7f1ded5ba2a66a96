"""From a file's bytes to what a rank did: JSON event by event, kernels joined to actions, order held to a schedule."""
