"""What a body is sent in: pieces, one after the other, so that large ones are not copied."""

Piece = bytes | memoryview
