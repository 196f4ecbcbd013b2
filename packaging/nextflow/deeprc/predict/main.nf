process DEEPRC_PREDICT {
    tag "$meta.id"
    label 'process_medium'

    conda "${moduleDir}/environment.yml"
    container "deeprc:0.1.0"

    input:
    tuple val(meta), path(repertoires, stageAs: 'repertoires/*'), path(metadata)
    path model

    output:
    tuple val(meta), path("*.predictions.tsv"), emit: predictions
    tuple val("${task.process}"), val('deeprc'), eval('deeprc --version | sed "s/.*version //"'), emit: versions_deeprc, topic: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    def args2 = task.ext.args2 ?: ''
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    export NUMBA_CACHE_DIR=./numba MPLCONFIGDIR=./matplotlib

    deeprc preprocess repertoires --metadata $metadata --output cohort.h5 --jobs $task.cpus $args
    deeprc predict $model cohort.h5 -o ${prefix}.predictions.tsv --device cpu $args2
    """

    stub:
    def prefix = task.ext.prefix ?: "${meta.id}"
    """
    touch ${prefix}.predictions.tsv
    """
}
