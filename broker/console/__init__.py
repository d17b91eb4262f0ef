"""The built files of the console, which a browser runs. `make console` builds them; the wheel and the image have them.

Source: docs/guides/console.md.
"""

from broker.console.files import PAGE, ConsoleFile, ConsoleFiles

__all__ = ["PAGE", "ConsoleFile", "ConsoleFiles"]
