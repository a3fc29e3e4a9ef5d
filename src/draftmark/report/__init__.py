"""What people read: terminal, HTML, Markdown. Views of the result document, nothing computed twice."""
