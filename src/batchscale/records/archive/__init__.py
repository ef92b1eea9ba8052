"""The tar archive of records: hostile bytes in, record files out, nothing unpacked."""
