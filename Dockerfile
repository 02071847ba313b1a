# docker build -t tidings .
# docker run -p 127.0.0.1:8787:8787 -v tidings:/var/lib/tidings tidings
FROM rust:1.95-bookworm AS build
WORKDIR /source
COPY . .
RUN cargo build --release --locked -p tidings

FROM debian:bookworm-slim
# Tesseract and Poppler read invoices.
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates tesseract-ocr poppler-utils && rm -rf /var/lib/apt/lists/* \
    && useradd --system --home /var/lib/tidings --create-home tidings
COPY --from=build /source/target/release/tidings /usr/local/bin/tidings
USER tidings
WORKDIR /var/lib/tidings
VOLUME /var/lib/tidings
EXPOSE 8787 8788
# A container is reached from outside itself: it listens on all its addresses, and whoever publishes the port decides.
ENV TIDINGS__LISTEN=0.0.0.0:8787 TIDINGS__PUSH__LISTEN=0.0.0.0:8788 TIDINGS__DATA_DIR=/var/lib/tidings/data TIDINGS__LOG__FORMAT=json
ENTRYPOINT ["tidings"]
CMD ["serve"]
