"""The spool folder: created if it is on this machine, and read by Spark if it is behind a URI."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streaming.config.source import SpoolSource
from streaming.errors import SourceUnavailable
from streaming.folder import local_folder, make_folder

_CLEANING: Final = {"keep": "off", "archive": "archive", "delete": "delete"}


def prepare_spool(source: SpoolSource) -> None:
    """Create the folder if it is on this machine: senders and the job may start in any order.

    Raises `SourceUnavailable` when it cannot be created.
    """
    local = spool_path(source)
    if local is None:
        return
    try:
        make_folder(local)
    except OSError as error:
        raise SourceUnavailable(
            f"the spool folder {local} cannot be created ({error.strerror})",
            "Fix its permissions, or set another source.spool.folder",
        ) from error


def read_spool(spark: SparkSession, source: SpoolSource) -> DataFrame:
    """Return the stream of whole files of a folder behind a URI, with their paths. Spark remembers every one of them.

    A file is read once it has a final name (`pattern`; a name that begins with a dot or an underscore is not
    final), so writers must write under another name and rename. A path is read once: names must not be reused.
    """
    reader = (
        spark.readStream.format("binaryFile")
        .schema("path string, modificationTime timestamp, length long, content binary")
        .option("pathGlobFilter", source.pattern)
        .option("maxBytesPerTrigger", source.max_bytes_per_trigger)
        .option("cleanSource", _CLEANING[source.after_reading])
        # Files may be moved in long after they were written; by default Spark silently skips week-old ones.
        .option("maxFileAge", "3650d")
    )
    if source.archive_folder is not None:
        reader = reader.option("sourceArchiveDir", source.archive_folder)
    return reader.load(source.folder).select(
        fn.col("content").alias("value"),
        fn.col("path").alias("origin"),
        fn.lit(None).cast("long").alias("position"),
    )


def spool_path(source: SpoolSource) -> Path | None:
    """Return the folder if it is on this machine, or mounted; None for one behind the URI of another file system."""
    local = local_folder(source.folder)
    return local.path if local is not None else None
