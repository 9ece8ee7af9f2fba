"""Read, write and check model folders: contract and files."""
