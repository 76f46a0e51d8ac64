"""Errors of XML parsers as messages with file and line."""

from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree.ElementTree import ParseError

from defusedxml import DefusedXmlException

from match_graph.errors import CorpusError


@contextmanager
def reading_xml(name: str) -> Iterator[None]:
    """Context in which defusedxml reads a file.

    Args:
        name: Name of the file, for places.

    Raises:
        CorpusError: The XML is malformed, breaks off, declares entities, or is in an encoding that
            cannot be read.
    """
    try:
        yield
    except ParseError as error:
        line, column = error.position
        reason = str(error).partition(":")[0]
        raise CorpusError(
            f"{name}:{line}: XML must be well-formed, but here it is not ({reason}, column "
            f"{column + 1}); fetch the file again."
        ) from error
    except DefusedXmlException as error:
        raise CorpusError(
            f"{name}: XML must declare no entities of its own, but this file does "
            f"({type(error).__name__}), as files do that are made to fill the memory or to read "
            f"other files; fetch it from where it is published."
        ) from error
    except (LookupError, ValueError) as error:
        raise CorpusError(
            f"{name}: XML must be in an encoding that can be read, but this is not ({error}); "
            f"convert the file to UTF-8."
        ) from error
