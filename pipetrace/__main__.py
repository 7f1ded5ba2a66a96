"""`python -m pipetrace` is `pipetrace`."""

from pipetrace.cli import main

if __name__ == "__main__":
    main()
