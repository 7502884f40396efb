"""What cellblock runs inside a Python cell: see mod.rs."""
