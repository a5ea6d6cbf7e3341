__attribute__((reqd_work_group_size(16, 1, 1)))
__kernel void fused(__global const float* restrict in0, __global const float* restrict in1, __global const float* restrict in2, __global const float* restrict in3, __global const float* restrict in4, __global const float* restrict in5, __global float* restrict out0, __global float* restrict out1, __global float* restrict out2, __global float* restrict out3) {
    const int lane = get_local_id(0);
    const int team = get_local_id(1);
    const int block = ((int)get_group_id(0) * 11) % 17;
    if (block < 16) {
        const int part = block;
        const int q = part / 16 + team;
        #pragma unroll 4
        for (int item = 0; item < 8; item++) {
            const int p = part % 16 * 128 + lane + item * 16;
            const float v0 = in2[p];
            const float v2 = v0 * 0.9f;
            const float v3 = in1[p];
            const float v5 = v3 * 0.1f;
            const float v6 = v2 + v5;
            const float v7 = in0[p];
            const float v9 = v6 * 0.001f;
            const float v10 = v7 - v9;
            out0[p] = v6;
            out1[p] = v10;
        }
    }
    else {
        const int part = block - 16;
        const int q = part + team;
        for (int item = 0; item < 1; item++) {
            const int p = lane + item * 16;
            const float v0 = in5[p];
            const float v2 = v0 * 0.9f;
            const float v3 = in4[p];
            const float v5 = v3 * 0.1f;
            const float v6 = v2 + v5;
            const float v7 = in3[p];
            const float v9 = v6 * 0.001f;
            const float v10 = v7 - v9;
            out2[p] = v6;
            out3[p] = v10;
        }
        {
            const int p = lane + 1;
            const float v0 = in5[p];
            const float v2 = v0 * 0.9f;
            const float v3 = in4[p];
            const float v5 = v3 * 0.1f;
            const float v6 = v2 + v5;
            const float v7 = in3[p];
            const float v9 = v6 * 0.001f;
            const float v10 = v7 - v9;
            out2[p] = v6;
            out3[p] = v10;
        }
    }
}
