"""Files and folders: written beside and renamed, listed with their checksums."""
