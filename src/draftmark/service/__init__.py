"""How a service is started, watched and stopped."""
