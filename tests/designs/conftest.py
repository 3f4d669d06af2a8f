"""What ``check`` says of a file here is not about the disk of this machine."""

from tests.support.disks import lasting_disk  # noqa: F401 - a fixture for all tests here
