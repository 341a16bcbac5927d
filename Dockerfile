# The image of a release, for each platform: docker buildx build --platform linux/amd64,linux/arm64 .
# docker-compose.yaml has its own, which also builds the local control plane.
ARG BUILDER=golang:1.26
ARG BASE=gcr.io/distroless/static-debian12:nonroot

FROM --platform=$BUILDPLATFORM ${BUILDER} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
# With the repository's .git, so that the program knows its revision.
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -ldflags "-s -w" -o /out/outrigger ./cmd/outrigger

FROM ${BASE}
COPY --from=build /out/outrigger /usr/local/bin/outrigger
USER 65532:65532
ENTRYPOINT ["outrigger"]
