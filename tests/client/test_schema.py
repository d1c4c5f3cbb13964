"""The published schema of binary updates, compiled by protoc, and the classes we use."""

import subprocess
import sys

from google.protobuf.descriptor_pb2 import FileDescriptorSet

from onebook.updates import FILE, SCHEMA, SCHEMA_FILE


def test_protoc_compiles_the_published_schema_to_our_classes(tmp_path):
    target = tmp_path / "compiled"
    command = [
        sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SCHEMA_FILE.parent}",
        f"--descriptor_set_out={target}", SCHEMA,
    ]  # fmt: skip
    subprocess.run(command, check=True, timeout=60)
    (compiled,) = FileDescriptorSet.FromString(target.read_bytes()).file
    assert compiled == FILE
