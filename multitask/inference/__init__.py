"""Using trained models: prediction files, search by embeddings, export to other libraries, a service over HTTP."""
