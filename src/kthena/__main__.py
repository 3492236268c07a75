"""`python -m kthena`."""

from kthena.cli.main import main

main()
