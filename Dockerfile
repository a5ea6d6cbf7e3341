# Stages: `runtime` (API and CPU worker) and `runtime-cuda` (GPU worker).
FROM python:3.11-slim AS base
WORKDIR /app
RUN useradd --uid 1000 --create-home fuseplan \
    && apt-get update && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
COPY requirements.lock pyproject.toml README.md LICENSE NOTICE THIRD_PARTY.md _fuseplan.py ./
RUN pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
COPY cost_model cost_model
COPY tuner tuner
COPY service service
COPY migrations migrations
COPY examples examples
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable .

FROM base AS runtime
USER fuseplan
CMD ["fuseplan", "serve"]

FROM base AS runtime-cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER fuseplan
CMD ["fuseplan", "worker", "--device", "cuda:0"]
