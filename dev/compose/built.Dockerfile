# This file builds the images of docker-compose.yaml on Linux without a registry. The images
# contain the programs that tools/build.sh and make static have built.
FROM scratch AS temporal
COPY bin/temporal /usr/local/bin/temporal
# A volume that is mounted at this path inherits the owner of this folder.
COPY --chown=65532:65532 dev/compose/volume /var/lib/temporal
USER 65532:65532
# The variable USER replaces /etc/passwd, from which the server reads its user.
ENV USER=temporal HOME=/var/lib/temporal
ENTRYPOINT ["temporal"]

FROM scratch AS roles
COPY --chown=65532:65532 bin/static/outrigger bin/static/probe /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["outrigger"]

FROM scratch AS controlplane
COPY --chown=65532:65532 bin/etcd bin/kube-apiserver bin/kube-controller-manager bin/kube-scheduler bin/kubectl bin/kwok /bin/
COPY --chown=65532:65532 config/crd /config/crd
COPY --chown=65532:65532 config/rbac /config/rbac
COPY --chown=65532:65532 bin/static/controlplane /bin/
# Volumes that are mounted at these paths inherit the owner of these folders.
COPY --chown=65532:65532 dev/compose/volume /var/lib/controlplane
COPY --chown=65532:65532 dev/compose/volume /kubeconfigs
USER 65532:65532
# kubectl and KWOK store caches in the home folder. Users also run kubectl in this container.
ENV HOME=/tmp KUBECONFIG=/var/lib/controlplane/kubeconfig
ENTRYPOINT ["controlplane"]
