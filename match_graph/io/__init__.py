"""Files and folders: written beside and renamed, checked, and read within limits."""
