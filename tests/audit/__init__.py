"""The audit: a small trusted base, and for each claim a mutation that its test must kill."""
