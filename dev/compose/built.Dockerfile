# The images of docker-compose.yaml without any registry: from the programs of
# tools/build.sh and make static, on Linux.
FROM scratch AS temporal
COPY bin/temporal /usr/local/bin/temporal
# A volume mounted there takes over the owner.
COPY --chown=65532:65532 dev/compose/volume /var/lib/temporal
USER 65532:65532
# In place of /etc/passwd, which says who the server runs as.
ENV USER=temporal HOME=/var/lib/temporal
ENTRYPOINT ["temporal"]

FROM scratch AS roles
COPY bin/static/outrigger bin/static/probe /usr/local/bin/
USER 65532:65532
ENTRYPOINT ["outrigger"]

FROM scratch AS controlplane
COPY bin/etcd bin/kube-apiserver bin/kube-controller-manager bin/kube-scheduler bin/kubectl bin/kwok /bin/
COPY config/crd /config/crd
COPY config/rbac /config/rbac
COPY bin/static/controlplane bin/static/probe /bin/
# Volumes mounted there take over the owner.
COPY --chown=65532:65532 dev/compose/volume /var/lib/controlplane
COPY --chown=65532:65532 dev/compose/volume /kubeconfigs
USER 65532:65532
# kubectl and KWOK keep caches in the home folder. People use kubectl in here too.
ENV HOME=/tmp KUBECONFIG=/var/lib/controlplane/kubeconfig
ENTRYPOINT ["controlplane"]
