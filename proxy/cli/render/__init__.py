"""What commands show: pages, tables, numbers, colours."""
