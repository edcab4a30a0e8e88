"""Files as streams: tables of any format, their cells as JSON values, rows as records in time order."""
