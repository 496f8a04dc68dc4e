# One image for Airflow and Spark: the same Python, the same PySpark, the same jars on both sides of spark-submit.
# Made by the project's own set-up, so that it holds what requirements.txt and delta-jars.sha256 pin, and nothing else.
# By tag: no registry of images could be asked where this was written, so no digest is known. Pin one when you build:
# PYTHON_IMAGE=python@sha256:...
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
FROM ${PYTHON_IMAGE}

RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless make procps \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/sluice

# First what set-up reads: a change of code alone installs nothing again.
COPY Makefile requirements-build.txt requirements.txt pyproject.toml ./
COPY include/sluice/doctor.py include/sluice/doctor.py
COPY spark_jobs/conf spark_jobs/conf
COPY spark_jobs/java spark_jobs/java
RUN PIP_NO_CACHE_DIR=1 make setup-store

COPY . .
RUN make setup-store && .venv/bin/python -m compileall -q include dags

# Nobody in it is root. What a run writes beside the data: Spark's local files in .sluice, Airflow's logs in its home.
RUN useradd --uid 10001 --no-create-home --home-dir /opt/airflow sluice \
    && install -d -o sluice -g sluice -m 0750 /data /opt/airflow \
    && chown sluice .sluice
USER sluice

ENV PATH=/opt/sluice/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENV SPARK_HOME=/opt/sluice/.venv/lib/python3.11/site-packages/pyspark
ENV SPARK_DIST_CLASSPATH=/opt/sluice/.sluice/jars/*:/opt/sluice/.sluice/log-store/*:/opt/sluice/.sluice/store-jars/*
ENV PYSPARK_PYTHON=/opt/sluice/.venv/bin/python
ENV SLUICE_ROOT=/opt/sluice
ENV TZ=UTC
