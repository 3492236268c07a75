"""`kthena up`: manifests on this machine, with nothing but Python."""

from kthena.cli.up.command import command

__all__ = ["command"]
