"""`sink reland`: lands ranges of the log again, in the place of the rows that the table has of them.

`reland.Reland` previews and makes one commit. `history` reads what was committed of the ranges, `survey` reads the log
again, `repair` decides for appended and for keyed tables, `table_rows` rewrites the file groups concerned.
"""
