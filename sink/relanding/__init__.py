"""`sink reland`: lands ranges of the log again, in the place of the rows that the table has of them."""
