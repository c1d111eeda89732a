"""What suites start and talk to: services, clients, networks, single actors."""
