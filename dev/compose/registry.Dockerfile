# This file builds the images of docker-compose.yaml after a git clone. The file compiles Outrigger. All other
# programs are copied from the images in docker-compose.yaml.
ARG BUILDER
ARG TEMPORAL_IMAGE
ARG ETCD_IMAGE
ARG KUBE_APISERVER_IMAGE
ARG KUBE_CONTROLLER_MANAGER_IMAGE
ARG KUBE_SCHEDULER_IMAGE
ARG KUBECTL_IMAGE
ARG KWOK_IMAGE

FROM ${TEMPORAL_IMAGE} AS temporal
# A volume that is mounted at this path inherits the owner of this folder.
COPY --chown=65532:65532 dev/compose/volume /var/lib/temporal
USER 65532:65532
# The variable USER replaces /etc/passwd, from which the server reads its user.
ENV USER=temporal HOME=/var/lib/temporal
ENTRYPOINT ["temporal"]

FROM ${BUILDER} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -o /out/ ./cmd/outrigger ./dev/compose/controlplane ./dev/compose/probe

# This image runs the three roles. The first argument is the role. The program probe is for
# engines that run a program as the health check.
FROM scratch AS roles
COPY --from=build /out/outrigger /out/probe /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["outrigger"]

FROM ${ETCD_IMAGE} AS etcd
FROM ${KUBE_APISERVER_IMAGE} AS kube-apiserver
FROM ${KUBE_CONTROLLER_MANAGER_IMAGE} AS kube-controller-manager
FROM ${KUBE_SCHEDULER_IMAGE} AS kube-scheduler
FROM ${KUBECTL_IMAGE} AS kubectl
FROM ${KWOK_IMAGE} AS kwok

FROM scratch AS controlplane
COPY --from=etcd /usr/local/bin/etcd /bin/
COPY --from=kube-apiserver /usr/local/bin/kube-apiserver /bin/
COPY --from=kube-controller-manager /usr/local/bin/kube-controller-manager /bin/
COPY --from=kube-scheduler /usr/local/bin/kube-scheduler /bin/
COPY --from=kubectl /bin/kubectl /bin/
COPY --from=kwok /usr/local/bin/kwok /bin/
COPY --chown=65532:65532 config/crd /config/crd
COPY --chown=65532:65532 config/rbac /config/rbac
COPY --from=build /out/controlplane /bin/
# Volumes that are mounted at these paths inherit the owner of these folders.
COPY --chown=65532:65532 dev/compose/volume /var/lib/controlplane
COPY --chown=65532:65532 dev/compose/volume /kubeconfigs
USER 65532:65532
# kubectl and KWOK store caches in the home folder. Users also run kubectl in this container.
ENV HOME=/tmp KUBECONFIG=/var/lib/controlplane/kubeconfig
ENTRYPOINT ["controlplane"]
