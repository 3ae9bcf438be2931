"""How blobs cross Spark: as pairs of a site's number and a frame, bytes that nothing on the way looks into.

A frame is the blob's number and its payload. Spark's shuffle takes the pairs, in the form in which PySpark hands pairs
to it: first a key, then its value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
from py4j.java_collections import ListConverter, MapConverter  # type: ignore[import-untyped]
from py4j.java_gateway import JavaClass  # type: ignore[import-untyped]
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.core.rdd import _prepare_for_python_RDD
from pyspark.serializers import FramedSerializer, pack_long, write_int
from pyspark.util import _load_from_socket

from sluice.engine.blobs import ReceivedBlob, SentBlob

COLUMN = "frame binary"
"""Keys and frames in turn, as a column of a DataFrame."""
MAX_BATCH_BYTES = 1 << 30
"""Bytes of keys and frames in one Arrow batch, whose offsets have 32 bits."""
_NUMBER = struct.Struct("<q")
_CLASSES = (
    *(f"org.apache.spark.api.python.{n}" for n in ("PairwiseRDD", "PythonRDD", "PythonUtils", "SimplePythonFunction")),
    "org.apache.spark.util.ThreadUtils",
    "scala.concurrent.duration.Duration",
    "scala.jdk.javaapi.CollectionConverters",
    "java.util.ArrayList",
)
Frame = tuple[bytes | pa.Buffer, ...]
"""The pieces of what is one value for Spark."""


class FrameSerializer(FramedSerializer):
    """Reads frames as bytes, and writes them piece by piece."""

    def dump_stream(self, iterator: Iterable[Frame], stream: BinaryIO) -> None:
        for frame in iterator:
            write_int(sum(len(piece) for piece in frame), stream)
            for piece in frame:
                stream.write(piece)

    def loads(self, obj: bytes) -> bytes:
        return obj


FRAMES = FrameSerializer()
_environments: WeakKeyDictionary[SparkContext, tuple[Any, tuple[Any, Any]]] = WeakKeyDictionary()


def frame_of(number: int, payload: pa.Buffer) -> Frame:
    return _NUMBER.pack(number), payload


def with_keys(blobs: Iterable[SentBlob]) -> Iterator[Frame]:
    """What a task sends to sites: a key, then a frame, and so on."""
    for site_key, number, payload in blobs:
        yield (pack_long(site_key),)
        yield frame_of(number, payload)


def read_frames(frames: Iterable[bytes]) -> Iterator[ReceivedBlob]:
    """The blobs that reach a site. Beside each there is the empty value that pins it (`anchors.py`)."""
    for frame in frames:
        if frame:
            yield _NUMBER.unpack_from(frame)[0], pa.py_buffer(frame).slice(_NUMBER.size)


def in_batches(frames: Iterable[Frame]) -> Iterator[pa.RecordBatch]:
    """Keys and frames as rows of Arrow batches, their bytes copied once."""
    waiting: list[Frame] = []
    size = 0
    for frame in frames:
        length = sum(len(piece) for piece in frame)
        if waiting and size + length > MAX_BATCH_BYTES:
            yield _batch(waiting)
            waiting, size = [], 0
        waiting.append(frame)
        size += length
    if waiting:
        yield _batch(waiting)


def _batch(frames: list[Frame]) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    offsets = [0]
    for frame in frames:
        for piece in frame:
            sink.write(piece)
        offsets.append(sink.tell())
    data = [None, pa.py_buffer(np.array(offsets, dtype=np.int32)), sink.getvalue()]
    return pa.RecordBatch.from_arrays([pa.Array.from_buffers(pa.binary(), len(frames), data)], ["frame"])


def run_tasks(
    context: SparkContext, frames: Any, work: Callable[[int, Iterable[bytes]], Iterable[Frame]], name: str
) -> Any:
    """The frames that tasks make of the partitions of a Java RDD of frames."""
    view = _name_classes(context)
    command, broadcasts, environment, includes = _prepare_for_python_RDD(context, (work, None, FRAMES, FRAMES))
    function = view.SimplePythonFunction(
        bytearray(command),
        *_in_java(context, environment, includes),
        context.pythonExec,
        context.pythonVer,
        broadcasts,
        context._javaAccumulator,
    )
    return view.PythonRDD(frames.rdd(), function, False, False).asJavaRDD().setName(name)


def _in_java(context: SparkContext, environment: dict[str, str], includes: list[str]) -> tuple[Any, Any]:
    """The environment and the files of every Python worker, as Java has them: made once, and anew when they have
    changed. PySpark makes them for every RDD, by a call for each entry: 5 ms a stage."""
    in_python = dict(environment), list(includes)
    cached = _environments.get(context)
    if cached is None or cached[0] != in_python:
        client = context._gateway._gateway_client  # type: ignore[union-attr]
        in_java = MapConverter().convert(environment, client), ListConverter().convert(includes, client)
        cached = _environments[context] = in_python, in_java
    return cached[1]


def as_pairs(context: SparkContext, frames: Any) -> Any:
    """A Java RDD of keys and frames in turn as one of pairs."""
    return _name_classes(context).PairwiseRDD(frames.rdd()).asJavaPairRDD()


def parallelize(context: SparkContext, frames: Iterable[bytes], tasks: int) -> Any:
    """Frames of the driver as a Java RDD."""
    listed = _name_classes(context).ArrayList()
    for frame in frames:
        listed.add(bytearray(frame))
    return context._jsc.parallelize(listed, tasks)


def begin_map_tasks(context: SparkContext, shuffled: Any) -> Any:
    """Have the tasks run that give a shuffle's pairs, as Spark's adaptive execution does. Jobs over these pairs take
    what is there, wait for what is on its way, and run again what has failed before. Returns what can be waited for and
    cancelled."""
    return context._jsc.sc().submitMapStage(shuffled.rdd().dependencies().head())


def wait_for_map_tasks(context: SparkContext, future: Any) -> bool:
    """Wait until tasks that were begun are done; whether none failed."""
    view = _name_classes(context)
    view.ThreadUtils.awaitReady(future, view.Duration.Inf())
    return bool(future.value().get().isSuccess())


def collect(context: SparkContext, frames: Any, meanwhile: Callable[[], None] = lambda: None) -> list[bytes]:
    """Run the job: the frames of a Java RDD. What is done `meanwhile` is done after Spark has been given the job, and
    the job's tasks come before those of jobs that are begun in it."""
    view = _name_classes(context)
    future = frames.collectAsync()
    try:
        meanwhile()
        collected = view.CollectionConverters.asScala(future.get().iterator())
    except Py4JJavaError as failure:
        if failure.java_exception.getClass().getSimpleName() == "ExecutionException":
            raise Py4JJavaError("the job has failed", failure.java_exception.getCause()) from None
        future.cancel(True)  # this thread was interrupted
        raise
    except BaseException:
        future.cancel(True)
        raise
    with _load_from_socket(view.PythonRDD.serveIterator(collected, "serve frames"), FRAMES) as stream:
        return list(stream)


def _name_classes(context: SparkContext) -> Any:
    """What Python sees of the JVM, with the classes that every job needs. For names that it does not have, PySpark asks
    the JVM each time, which tries one package after the other: a millisecond and more."""
    view: Any = context._jvm
    client = context._gateway._gateway_client  # type: ignore[union-attr]
    for name in _CLASSES:
        view.__dict__.setdefault(name.rpartition(".")[2], JavaClass(name, client))
    return view
