"""The sections of the page: each file turns a record into parts, without any HTML."""
