"""The client side of Kubernetes: client, informers, work queues, controllers, election, events."""
