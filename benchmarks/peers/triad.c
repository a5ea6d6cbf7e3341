/* a = b + 3 c */
void triad(float *restrict a, const float *restrict b, const float *restrict c,
           long count, int threads)
{
#pragma omp parallel for simd schedule(static) num_threads(threads)
    for (long i = 0; i < count; i++)
        a[i] = b[i] + 3.0f * c[i];
}
