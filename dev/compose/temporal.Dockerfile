# The Temporal dev server of tools/build.sh, or another image that has the
# program `temporal`, with a folder for the history that its user may write to.
ARG TEMPORAL_IMAGE=built

FROM scratch AS built
COPY bin/temporal /usr/local/bin/temporal

FROM ${TEMPORAL_IMAGE}
# A volume mounted there takes over the owner.
COPY --chown=65532:65532 dev/compose/volume /var/lib/temporal
USER 65532:65532
# In place of /etc/passwd, which says who the server runs as.
ENV USER=temporal HOME=/var/lib/temporal
ENTRYPOINT ["temporal"]
