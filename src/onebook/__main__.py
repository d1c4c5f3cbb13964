"""`python -m onebook`."""

from onebook.cli.main import main

main()
