"""What commands share: flags, where a service is, output, exit codes."""
