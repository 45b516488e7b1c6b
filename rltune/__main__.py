"""`python -m rltune`: the command line with the interpreter at hand."""

from rltune.cli import main

if __name__ == "__main__":
    main()
