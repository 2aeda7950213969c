"""Where the table's files are, and with which credentials each library reaches them: one answer for writers, readers,
the auditor and the commands.
"""
