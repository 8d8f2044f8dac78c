"""Look into archives (tar, zip and what is compressed like them) that users have stored as objects."""
