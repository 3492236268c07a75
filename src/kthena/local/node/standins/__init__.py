"""Programs that stand for images whose real ones have no use on a laptop. Start-up time counts."""
