"""The service: predictions, embeddings and similarities over HTTP, with FastAPI.

A request goes through `app` (token, size of the body), a route of `routes`, and the queue of its model in `batching`.
FastAPI and uvicorn are an extra, so other modules import this folder only to serve (`limits` needs neither).
"""
