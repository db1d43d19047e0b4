"""The service: a fitted tagger answers by REST, and a studio in the browser shows it.

In: folders of models, and items that people review. Out: an ASGI application. `host` keeps a model
and its versions, `batching` scores what is asked at once, `app` and `api` speak HTTP; `annif`,
`label_studio` and `photoprism` are interfaces that other programs know; `static` is the studio.
"""
