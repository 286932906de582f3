"""An object store without room: filled where a table has its files, then given more room."""

from __future__ import annotations

from dataclasses import dataclass

from pyarrow.fs import AwsStandardS3RetryStrategy, FileSelector, S3FileSystem
from pyiceberg.catalog import Catalog
from typing_extensions import override

from devservers import SeaweedFS

VOLUMES = 4  # of one mebibyte: of either bucket, of the filer itself, and one more
FILLING = "filling-"
FULL = r"^[^\n]* an object store without room answers like this: check its disk[^\n]*$"
"""The sentence with which a micro-batch fails."""


@dataclass(eq=False)
class SmallStore(SeaweedFS):
    """SeaweedFS with few small volumes: a put fails as on a full disk once they are used up."""

    volumes: int = VOLUMES

    @override
    def command(self) -> list[str]:
        room = [f"-volume.max={self.volumes}", "-master.volumeSizeLimitMB=1"]
        return [*super().command(), *room]

    def fill(self, table: str) -> None:
        """Puts objects among the data files of a table until there is no room for one."""
        store = self._client()
        below = f"{table.removeprefix('s3://')}/data/{FILLING}"
        for number in range(50 * self.volumes):
            try:
                with store.open_output_stream(f"{below}{number}") as file:
                    file.write(b"x" * 200_000)
            except OSError as error:
                if "INTERNAL_FAILURE" in str(error):
                    return
                raise
        raise AssertionError(f"{self.volumes} volumes of a mebibyte are never full")

    def data_files(self, table: str) -> set[str]:
        """The paths of all that lies among the data files of a table, whoever lists them."""
        below = FileSelector(f"{table.removeprefix('s3://')}/data", recursive=True)
        files = [one for one in self._client().get_file_info(below) if one.is_file]
        return {f"s3://{one.path}" for one in files if not one.base_name.startswith(FILLING)}

    def make_room(self) -> None:
        """More volumes; that takes a new start, as another disk would."""
        self.kill()
        self.volumes += 20
        self.start()

    def _client(self) -> S3FileSystem:
        return S3FileSystem(
            access_key=self.access_key,
            secret_key=self.secret_key,
            endpoint_override=self.s3_endpoint,
            region=self.region,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=1),
        )


def location(catalog: Catalog, namespace: str) -> str:
    """Of the table `orders`."""
    return catalog.load_table((namespace, "orders")).location()


def listed(catalog: Catalog, namespace: str) -> set[str]:
    """The data files that readers of the table `orders` see."""
    files = catalog.load_table((namespace, "orders")).scan().plan_files()
    return {one.file.file_path for one in files}
