# What scripts of Debian's packages would have done; the working directory goes
# into the tree.
set -eu

# By update-alternatives.
for folder in /usr/lib/*-linux-gnu/blas; do :; done
libraries=${folder%/blas}
mkdir -p ".$libraries"
ln -s blas/libblas.so.3 ".$libraries/libblas.so.3"
ln -s lapack/liblapack.so.3 ".$libraries/liblapack.so.3"

# By r-base-core: settings, with a size of paper.
mkdir -p etc/R
sed "s/^R_PAPERSIZE_USER=.*/R_PAPERSIZE_USER=\${R_PAPERSIZE-'a4'}/" /usr/lib/R/etc/Renviron.ucf \
    >etc/R/Renviron
