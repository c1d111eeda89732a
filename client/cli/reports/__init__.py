"""What commands tell of measurements, batches and timelines: tables and sentences for people, objects for programs."""
