"""`python -m deeprc` is the `deeprc` command."""

from deeprc.cli import main

if __name__ == "__main__":
    main()
