"""From a URI to a bucket of an object store: `s3://`, `gs://`, `abfs://`, the options after '?', and credentials.

URIs mean what they mean to pyarrow.fs and, without options, to Spark's Hadoop file systems, so that the same text works
for all three. What a URI leaves open comes from the environment: `AWS_*`, `GOOGLE_*`, `AZURE_*`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pyarrow import fs as arrow_fs

from sluice.model.errors import StorageError

HADOOP_NAMES = {"s3a": "s3", "s3n": "s3"}
"""Schemes that Spark's file systems and pyarrow's call differently."""
OBJECT_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss")
IGNORED = ("allow_bucket_creation", "allow_bucket_deletion", "allow_delayed_open", "project_id")
"""Options of pyarrow's that say nothing about reading and writing objects."""
REQUEST_TIMEOUT = timedelta(minutes=5)
CREDENTIAL_FILE = "~/.aws/credentials"


@dataclass(frozen=True)
class Bucket:
    """A bucket, or Azure's container, and how to reach it."""

    kind: str
    name: str
    uri: str
    config: tuple[tuple[str, str], ...]
    plain_http: bool = False

    @property
    def copies_in_background(self) -> bool:
        return self.kind == "azure"

    def open(self) -> Any:
        """obstore's store; one for all users in this process, who share its connections."""
        return _open(self, os.getpid())


def parse(uri: str) -> tuple[Bucket, str]:
    """The bucket and the path in it.

    >>> bucket, path = parse("s3a://data/ck/desk?endpoint_override=localhost:9000&scheme=http&region=eu-west-1")
    >>> bucket.uri, path, dict(bucket.config)["endpoint"]
    ('s3://data', 'ck/desk', 'http://localhost:9000')
    """
    parts = urlsplit(uri)
    options = {k: v for k, v in parse_qsl(parts.query, keep_blank_values=True) if k not in IGNORED}
    scheme = HADOOP_NAMES.get(parts.scheme, parts.scheme)
    if scheme == "s3":
        bucket, path = _s3(parts, options)
    elif scheme in ("gs", "gcs"):
        bucket, path = _google(parts, options)
    else:
        bucket, path = _azure(parts, options)
    if options:
        raise ValueError(f"unknown option {next(iter(options))!r}")
    if not bucket.name:
        raise ValueError("it names no bucket")
    return bucket, unquote(path).strip("/")


def _s3(parts: SplitResult, options: dict[str, str]) -> tuple[Bucket, str]:
    name = parts.netloc.rpartition("@")[2]
    config = {}
    if parts.username:
        config = {"access_key_id": unquote(parts.username), "secret_access_key": unquote(parts.password or "")}
    endpoint = options.pop("endpoint_override", "")
    scheme = options.pop("scheme", "https")
    if endpoint and "://" not in endpoint:
        endpoint = f"{scheme}://{endpoint}"
    endpoint = endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    if endpoint:
        config["endpoint"] = endpoint
    config["region"] = options.pop("region", "") or _region(name, endpoint)
    return Bucket("s3", name, f"s3://{name}", _frozen(config), endpoint.startswith("http://")), parts.path


@lru_cache(maxsize=64)
def _region(bucket: str, endpoint: str) -> str:
    """Where a bucket of Amazon's lies, as the store itself says; elsewhere what the environment says."""
    usual = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    if endpoint:
        return usual
    try:
        return str(arrow_fs.resolve_s3_region(bucket))
    except OSError:
        return usual


def _google(parts: SplitResult, options: dict[str, str]) -> tuple[Bucket, str]:
    name = parts.netloc.rpartition("@")[2]
    config = {"skip_signature": "true"} if parts.username == "anonymous" else {}
    endpoint, scheme = options.pop("endpoint_override", ""), options.pop("scheme", "https")
    if endpoint:
        config["base_url"] = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
    plain_http = config.get("base_url", "").startswith("http://")
    return Bucket("google", name, f"gs://{name}", _frozen(config), plain_http), parts.path


def _azure(parts: SplitResult, options: dict[str, str]) -> tuple[Bucket, str]:
    """Hadoop's form `container@account.dfs.core.windows.net/path` and the three others that pyarrow knows."""
    before, _, host = parts.netloc.rpartition("@")
    first, _, key = (unquote(text) for text in before.partition(":"))
    path = parts.path
    if "." in host or ":" in host:
        if host.endswith(".dfs.core.windows.net") and first:  # container@account.dfs..., as Hadoop writes it
            account, container = host.partition(".")[0], first
        else:
            container, _, path = path.lstrip("/").partition("/")
            account = first or host.partition(".")[0]
    else:  # account@container
        account, container = first or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", ""), host
    config = {"account_name": account}
    if key:
        config["account_key"] = key
    tls = options.pop("enable_tls", "true").lower() != "false"
    authority = options.pop("blob_storage_authority", "")
    options.pop("dfs_storage_authority", "")  # only the blob service is used
    if not authority and not host.endswith(".core.windows.net") and (":" in host or "." in host):
        authority = host
    if authority:
        place = f"{account}{authority}" if authority.startswith(".") else f"{authority}/{account}"
        config["endpoint"] = f"{'https' if tls else 'http'}://{place}"
    for option in ("tenant_id", "client_id", "client_secret"):
        if option in options:
            config[option] = options.pop(option)
    credential = options.pop("credential_kind", "default")
    if credential == "anonymous":
        config["skip_signature"] = "true"
    elif credential not in ("default", "environment", "workload_identity", "client_secret", "managed_identity"):
        raise ValueError(f"unknown credential_kind {credential!r}")
    return Bucket("azure", container, f"abfs://{container}@{account}", _frozen(config), not tls), path


def _frozen(config: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(config.items()))


@lru_cache(maxsize=64)
def _open(bucket: Bucket, process: int) -> Any:
    from obstore import store

    config: Any = dict(bucket.config)
    client: Any = {"allow_http": bucket.plain_http, "timeout": REQUEST_TIMEOUT}
    if bucket.kind == "s3":
        return store.S3Store(bucket.name, config=config, client_options=client, **_aws_credentials(bucket))
    if bucket.kind == "google":
        return store.GCSStore(bucket.name, config=config, client_options=client)
    return store.AzureStore(bucket.name, config=config, client_options=client)


def _aws_credentials(bucket: Bucket) -> dict[str, Any]:
    """Profiles of `~/.aws` need boto3 to be read; keys and the roles of machines and pods do not."""
    profile = os.environ.get("AWS_PROFILE")
    file = os.path.expanduser(os.environ.get("AWS_SHARED_CREDENTIALS_FILE", CREDENTIAL_FILE))
    if (
        "access_key_id" in dict(bucket.config)
        or os.environ.get("AWS_ACCESS_KEY_ID")
        or not (profile or os.path.exists(file))
    ):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ImportError:
        raise StorageError(
            f"the credentials for {bucket.uri} are in {f'the profile {profile!r}' if profile else file}, and reading "
            "them needs boto3: install it, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from None
    return {"credential_provider": Boto3CredentialProvider()}
