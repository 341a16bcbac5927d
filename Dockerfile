# This file builds the image of a release: docker buildx build --platform linux/amd64,linux/arm64 .
# docker-compose.yaml uses the files in dev/compose, which also build the local control plane.
ARG BUILDER=golang:1.26
ARG BASE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
# The source contains .git, so that go build records the revision in the program.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w" -o /out/outrigger ./cmd/outrigger

FROM ${BASE}
COPY --from=build /out/outrigger /usr/local/bin/outrigger
USER 65532:65532
ENTRYPOINT ["outrigger"]
