"""Value types of paths to files and folders."""

from typing import ClassVar

from proxy.config.diagnostics.diagnostics import InvalidValue
from proxy.config.source.nodes import Scalar
from proxy.config.values.base import ValueType


class FilePath(ValueType[str]):
    """The path of a file, relative to the configuration file that names it."""

    noun = "path of a file"
    example = "tls/ca.pem"
    schema: ClassVar = {"type": "string", "minLength": 1}

    @property
    def expects(self) -> str:
        return f"the {self.noun}: {self.example}"

    def read(self, scalar: Scalar) -> str:
        if not scalar.text or "\0" in scalar.text:
            raise InvalidValue(f"there is no path, write {self.example} (say)")
        return str(scalar.position.source.directory / scalar.text)


class FolderPath(FilePath):
    """The path of a folder, relative to the configuration file that names it."""

    noun = "path of a folder"
    example = "./state"
